"""`holdfast chaos`: its checker, its plan of faults, its proxy, and short campaigns."""
