"""Public tenders, found, matched to devices, pushed and archived: an application built on Holdfast."""
