"""List the text files of an untrusted folder, and cut them into passages."""
