"""Small experiments that demonstrate how attention works; the CLI commands `steps`, `attend` and `demo` print them."""
