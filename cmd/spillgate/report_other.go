//go:build !unix

package main

import "os"

// reportSignals ask for a report: here there are none.
var reportSignals []os.Signal
