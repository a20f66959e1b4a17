package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
)

func TestTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logins := spillgate.Must("1/10s burst 3")
		for _, step := range []struct {
			after time.Duration
			ip    string
			want  string
		}{
			{0, "203.0.113.9", "go on, 2 left"},
			{0, "203.0.113.9", "go on, 1 left"},
			{0, "203.0.113.9", "go on, 0 left"},
			{0, "203.0.113.9", "come back in 10 s"},
			{0, "198.51.100.7", "go on, 2 left"},
			{1500 * time.Millisecond, "203.0.113.9", "come back in 9 s"},
			{8500 * time.Millisecond, "203.0.113.9", "go on, 0 left"},
		} {
			time.Sleep(step.after)
			var out strings.Builder
			try(&out, logins, step.ip)
			if want := step.ip + ": " + step.want + "\n"; out.String() != want {
				t.Errorf("got %q, want %q", out.String(), want)
			}
		}
	})
}
