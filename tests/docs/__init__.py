"""What README and docs say, run."""
