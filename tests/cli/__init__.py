"""The command line, in this process and as a process of its own."""
