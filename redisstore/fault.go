package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
)

// A Fault says in which way the server did not answer.
type Fault uint8

// The kinds of faults, as [Stats] counts them.
const (
	// NoFault : there was an answer.
	NoFault Fault = iota
	// TimedOut : no answer within the budget, or none that could be sent.
	TimedOut
	// Refused : no connection could be made.
	Refused
	// Broken : the connection ended in the middle, or what came is no answer.
	Broken
	// ReadOnly : the server is a replica, as after a failover.
	ReadOnly
	// Loading : the server reads its data in.
	Loading
	// OutOfMemory : the server refuses to write, for want of memory.
	OutOfMemory
	// NotWriting : the server writes nothing for now, since it can't save to its disk
	// (MISCONF) or has too few replicas (NOREPLICAS).
	NotWriting
	// ClusterDown : the cluster has no server for the slot.
	ClusterDown
	// Busy : a script runs for too long, or was killed.
	Busy
	// NoScript : the script is not loaded. It is sent again, whole, so that
	// this is counted but seldom seen.
	NoScript
	// Denied : wrong password, or no right to run scripts, to run a command in one, or
	// to a key. The latter two are faults of what was asked, and open no breaker.
	Denied
	// WrongType : something else than a state of this package is at a key. The server
	// answers, so this opens no breaker.
	WrongType
	// Other : any other error of the server or the client.
	Other

	faults // how many there are
)

var faultNames = [faults]string{"none", "timeout", "refused", "broken", "readonly", "loading", "oom", "notwriting", "clusterdown", "busy", "noscript", "denied", "wrongtype", "other"}

// String returns the fault in a word, fit for a metric's label.
func (f Fault) String() string {
	if f < faults {
		return faultNames[f]
	}
	return fmt.Sprintf("fault(%d)", uint8(f))
}

// replies are how errors of a server begin.
var replies = []struct {
	prefix string
	fault  Fault
}{
	{"NOSCRIPT", NoScript},
	{"READONLY", ReadOnly},
	{"LOADING", Loading},
	{"MASTERDOWN", Loading},
	{"OOM", OutOfMemory},
	{"MISCONF", NotWriting},
	{"NOREPLICAS", NotWriting},
	{"CLUSTERDOWN", ClusterDown},
	{"TRYAGAIN", ClusterDown},
	{"MOVED", ClusterDown},
	{"ASK", ClusterDown},
	{"BUSY", Busy},
	{"UNKILLABLE", Busy},
	{"NOAUTH", Denied},
	{"WRONGPASS", Denied},
	{"NOPERM", Denied},
}

// KindOf says what err is: by the text of a server's error, which all
// libraries pass on, and by the errors of the standard library.
func KindOf(err error) Fault {
	if err == nil {
		return NoFault
	}
	text := err.Error()
	for _, r := range replies {
		if strings.HasPrefix(text, r.prefix) || strings.Contains(text, "-"+r.prefix+" ") {
			return r.fault
		}
	}
	var op *net.OpError
	switch {
	case strings.Contains(text, "Script killed"):
		return Busy
	case deniedMidway(text):
		return Denied
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.As(err, &op) && op.Op == "dial":
		if op.Timeout() {
			return TimedOut
		}
		return Refused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), isTimeout(err):
		return TimedOut
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Broken
	}
	return Other
}

// A scope says what an error is about: the server as a whole, or what one call asked of
// it, so that another call would be carried out.
type scope uint8

const (
	ofServer scope = iota
	ofKeys         // no right to one of them, which is looked at before the script begins
	ofScript       // no right to a command, or an error of the script itself, midway
	ofSlot         // some of its keys went to the slot's next server already, or are new: surely not begun
)

// errMoving wraps what the server says of such a call.
var errMoving = errors.New("its keys are in a slot that is on its way to another server")

func scopeOf(err error) scope {
	if err == nil {
		return ofServer
	}
	text := err.Error()
	switch kind := KindOf(err); {
	case deniedMidway(text), kind == Other && strings.HasPrefix(strings.TrimPrefix(text, "ERR "), "user_script:"):
		return ofScript
	case kind == Denied && strings.Contains(text, "permissions to access"):
		return ofKeys
	case strings.HasPrefix(text, "TRYAGAIN"):
		return ofSlot
	}
	return ofServer
}

// deniedMidway reports whether a script had no right to a command or a key.
func deniedMidway(text string) bool {
	return strings.Contains(text, "The user executing the script can't") || strings.Contains(text, "ACL failure in script")
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
