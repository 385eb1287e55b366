"""Fatal step, judges, reward and metrics: pure functions shared by training and evaluation."""
