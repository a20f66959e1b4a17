package main

// ours lists what this repository publishes.
func ours() []contestant { return nil }

// ourRatios lists what is claimed about it.
func ourRatios() []ratio { return nil }
