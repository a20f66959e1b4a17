package spillgate

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestEarn(t *testing.T) {
	for _, tt := range []struct {
		limit string
		n     int64
		want  time.Duration
	}{
		{"10/s burst 1", 1, 100 * time.Millisecond}, {"3/s", 1, 333333333}, {"3/s", 3, time.Second}, {"1/h queue 1", 2, 2 * time.Hour},
		{"1/s", 0, 0}, {"1/s", -1, 0}, {"0/s burst 1", 1, Never}, {"1/h", 1 << 62, Never}, {"5/s fixed", 1, 200 * time.Millisecond}, {"unlimited", 1, 0},
	} {
		l, err := ParseLimit(tt.limit)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Earn(tt.n); got != tt.want {
			t.Errorf("%s: %d take %s, want %s", tt.limit, tt.n, got, tt.want)
		}
	}
}

func TestWindow(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10/s burst 20": 2 * time.Second, "10/s burst 1": 100 * time.Millisecond, "3/s burst 1": 333333333, "10000000000/s burst 1": 1,
		"1/h queue 1": 2 * time.Hour, "5/10s fixed": 10 * time.Second, "5/10s sliding": 10 * time.Second, "5/10s log": 10 * time.Second,
		"5/calendar minute": time.Minute, "5/calendar hour": time.Hour, "5/calendar day in Europe/Berlin": 24 * time.Hour,
		"5/calendar week": 7 * 24 * time.Hour, "5/calendar month": 0, "0/s burst 5": 0, "3 at once": 0, "unlimited": 0,
	} {
		l, err := ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Window(); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// What is settled up and down again leaves what the truth would have left.
func TestSpentUpAndDown(t *testing.T) {
	for _, limit := range []string{"10/h fixed", "10/h sliding", "10/h log"} {
		for _, up := range []int64{5, 30} {
			synctest.Test(t, func(t *testing.T) {
				l := Must(limit)
				defer l.Close()
				d := l.Take("k", 1)
				time.Sleep(time.Second)
				l.Spent("k", d, up)
				d.Taken = up
				time.Sleep(time.Second)
				l.Spent("k", d, 1)
				if left := l.Peek("k").Remaining; left != 9 {
					t.Errorf("%s: 1, then %d, then 1 used: %d left, want 9", limit, up, left)
				}
			})
		}
	}
}

// What is given back late was earned again meanwhile, if the bucket was full:
// it must not fill the bucket a second time.
func TestLateGiveBackIsNotEarnedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Must("1/s burst 5")
		defer l.Close()
		var held []Decision
		for range 5 {
			held = append(held, l.Take("k", 1))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		l.Take("k", 5)
		for _, d := range held {
			l.GiveBack("k", d)
		}
		if left := l.Peek("k").Remaining; left != 0 {
			t.Errorf("%d left, want none", left)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := Must("1/10s burst 10")
		defer l.Close()
		d := l.Take("k", 1)
		time.Sleep(100 * time.Millisecond)
		l.GiveBack("k", d)
		if left := l.Peek("k").Remaining; left != 10 {
			t.Errorf("%d left after a prompt give-back, want all 10", left)
		}
		l.Take("k", 5)
		d = l.Take("k", 1)
		time.Sleep(20 * time.Second) // not full in between: it costs what it did
		l.GiveBack("k", d)
		if left := l.Peek("k").Remaining; left != 7 {
			t.Errorf("%d left, want 10 - 5 + 2", left)
		}
	})
}
