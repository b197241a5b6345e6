"""Where a release's files come from: a local folder, the hub, or a plugin (`day0.sources`)."""
