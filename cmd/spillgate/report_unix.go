//go:build unix

package main

import (
	"os"
	"syscall"
)

// reportSignals ask for a report.
var reportSignals = []os.Signal{syscall.SIGUSR1}
