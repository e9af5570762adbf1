"""Audio: read sound files, compute their features, and synthesise speech."""
