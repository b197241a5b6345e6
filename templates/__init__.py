"""Jinja2 templates of the report and of the configs it recommends."""
