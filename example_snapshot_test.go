package spillgate_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spillgate/spillgate"
)

// A program that is restarted goes on where it was.
func ExampleLimiter_RestoreFile() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	state := filepath.Join(dir, "logins")

	for range 2 { // two lives of one program
		logins := spillgate.Must("3/h")
		if err := logins.RestoreFile(state); errors.Is(err, fs.ErrNotExist) {
			fmt.Println("first start")
		} else if err != nil {
			panic(err)
		}
		for range 2 {
			fmt.Println(logins.Take("203.0.113.9", 1).Allowed)
		}
		if err := logins.SnapshotFile(state); err != nil {
			panic(err)
		}
		logins.Close()
	}
	// Output:
	// first start
	// true
	// true
	// true
	// false
}
