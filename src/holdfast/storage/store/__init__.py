"""The ports over named statements, one module per aggregate. A dialect that needs several statements for one operation
overrides that operation and nothing else."""
