"""What users need to test their own code against Holdfast; imported by tests only."""
