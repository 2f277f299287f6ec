"""Topics and groups changed or listed on request, and run-time figures."""
