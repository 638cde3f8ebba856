-- What is asked is only whether it may be run.
return 1
