"""Many runs: suites, verdicts, the store, reports."""
