"""The stages, one package each, and what all stages share: records, findings, verdicts, thresholds."""
