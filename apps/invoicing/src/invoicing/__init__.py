"""Invoices, their PDFs, their e-mail and their reminders: an application built on Holdfast."""
