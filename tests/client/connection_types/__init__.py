"""Every kind of connection a caller may hold, behind one face, so that each test runs on all of them."""
