package client_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/client"
)

// A roundTrip is a round tripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A refusal whose body never comes costs no more time than its wait.
func TestRefusalThatStallsHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, begun := 0, time.Now()
		body, never := io.Pipe()
		c := http.Client{Transport: &client.Transport{
			Patience: client.Patience{Spread: -1},
			Base: roundTrip(func(*http.Request) (*http.Response, error) {
				if asked++; asked > 1 {
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
				}
				return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"2"}}, Body: body, ContentLength: 4000}, nil
			}),
		}}
		stuck := time.AfterFunc(time.Hour, func() { never.Close() })
		defer stuck.Stop()
		resp, err := c.Get("http://a.test/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if took := time.Since(begun); resp.StatusCode != http.StatusOK || took < 2*time.Second || took > 3*time.Second {
			t.Errorf("status %d after %s", resp.StatusCode, took)
		}
		if _, err := never.Write([]byte("x")); err != io.ErrClosedPipe {
			t.Errorf("the body is open: %v", err)
		}
	})
}
