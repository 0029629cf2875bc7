"""The rules of compatibility, by subject. Importing this package registers them all."""

from imagebuild.spec.rules import host, images, inference, learning, serving, torch
from imagebuild.spec.rules.book import RULES, Context, Rule

__all__ = ["RULES", "Context", "Rule", "host", "images", "inference", "learning", "serving", "torch"]
