"""The demo as people meet it: a process, a terminal, a killed worker."""
