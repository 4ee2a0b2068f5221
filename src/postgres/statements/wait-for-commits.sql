SELECT version, at_ms FROM wait_for_commits()
