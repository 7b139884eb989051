"""What command line, API and pages share: access, questions and commands, each checked and audited in one place."""
