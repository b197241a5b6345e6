"""Records -> report.json, report.html, diff of two runs, index of runs."""
