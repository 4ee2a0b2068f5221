SELECT untold_commits() AS count
