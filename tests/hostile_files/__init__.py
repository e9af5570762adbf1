"""Hostile files of every kind that Jumok reads, built by functions; the tests assert that each is refused."""
