package redisstore

import (
	"errors"
	"testing"
)

// What a server says in an error decides whether it is about the server or about one
// call. The texts of 7.0 were seen, those that begin as later versions have them not.
func TestScopes(t *testing.T) {
	for text, want := range map[string]scope{
		"NOPERM this user has no permissions to access one of the keys used as arguments": ofKeys,
		"NOPERM No permissions to access a key":                                           ofKeys,
		"NOPERM this user has no permissions to run the 'evalsha' command":                ofServer,
		"NOAUTH Authentication required.":                                                 ofServer,
		"ERR The user executing the script can't run this command or subcommand":          ofScript,
		"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: a643, on @user_script:1.": ofScript,
		"ERR ACL failure in script: User gate has no permissions to run the 'get' command script: a643, on @user_script:1.":                           ofScript,
		"ERR user_script:1: attempt to index local 'x' (a nil value) script: cf0e, on @user_script:1.":                                                ofScript,
		"user_script:1: attempt to index local 'x' (a nil value) script: cf0e, on @user_script:1.":                                                    ofScript,
		"OOM command not allowed when used memory > 'maxmemory'. script: 1f8f, on @user_script:1.":                                                    ofServer,
		"READONLY You can't write against a read only replica. script: 1f8f, on @user_script:1.":                                                      ofServer,
		"MISCONF Errors writing to the AOF file: No space left on device script: 1f8f, on @user_script:1.":                                            ofServer,
		"NOREPLICAS Not enough good replicas to write. script: 1f8f, on @user_script:1.":                                                              ofServer,
		"LOADING Redis is loading the dataset in memory":                                                                                              ofServer,
		"ERR something else": ofServer,
	} {
		if got := scopeOf(errors.New(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	if scopeOf(nil) != ofServer {
		t.Error("nothing is about a call")
	}
}

// What a server refuses, at once or in the middle of a script, in words of one version or
// another, is of a kind.
func TestKindOfErrors(t *testing.T) {
	for text, want := range map[string]Fault{
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.":                        NotWriting,
		"MISCONF Errors writing to the AOF file: No space left on device script: 1f8f, on @user_script:1.":                        NotWriting,
		"ERR Error running script (call to f_1f8f): @user_script:1: @user_script: 1: -MISCONF Errors writing to the AOF file: x ": NotWriting,
		"NOREPLICAS Not enough good replicas to write.":                                                                           NotWriting,
		"OOM command not allowed when used memory > 'maxmemory'. script: 1f8f, on @user_script:1.":                                OutOfMemory,
		"READONLY You can't write against a read only replica. script: 1f8f, on @user_script:1.":                                  ReadOnly,
		"ERR Script killed by user with SCRIPT KILL. script: 1f8f, on @user_script:1.":                                            Busy,
		"ERR Error running script (call to f_1f8f): @user_script:1: Script killed by user with SCRIPT KILL... ":                   Busy,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":                                  Busy,
		"UNKILLABLE Sorry the script already executed write commands against the dataset.":                                        Busy,
		"ERR MISCONF is no word here": Other,
	} {
		if got := KindOf(errors.New(text)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if got := NotWriting.String(); got != "notwriting" {
		t.Error(got)
	}
}
