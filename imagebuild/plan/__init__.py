"""What must exist: targets and their order, the inputs digest, the rendered Containerfiles. Pure."""
