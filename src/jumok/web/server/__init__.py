"""The local web server of the page: its files, and a WebSocket that carries the messages of a session."""
