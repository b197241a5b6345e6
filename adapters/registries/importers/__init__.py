"""Support lists that vendors publish, read as declared rows: never as measured ones."""
