"""What the report's page shows: records as sections, tables and figures, which the template lays out."""
