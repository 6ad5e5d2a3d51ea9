"""What each worker role may do on AWS: one table, and the IAM policies made from it."""
