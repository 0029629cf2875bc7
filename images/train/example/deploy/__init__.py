"""From a trained policy to a file that runs without torch."""
