"""Korean: sentences with their English translations, and stories, generated from a grammar."""
