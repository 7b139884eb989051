"""Where tenders come from: one protocol, an API and pages behind it, and how what they say is put together."""
