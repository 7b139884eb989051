"""The version, said here and nowhere else."""

VERSION = "0.2.0"
