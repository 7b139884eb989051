"""What jobs cost of limits that count costs; see docs/do/count-costs.md."""
