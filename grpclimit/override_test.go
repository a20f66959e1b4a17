package grpclimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/grpclimit"
	"github.com/spillgate/spillgate/policy"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// What a call is told under an override is told of that, not of its rule.
func TestStatusesUnderOverrides(t *testing.T) {
	for _, c := range []struct {
		name     string
		override policy.Override
		codes    [3]codes.Code
		retry    time.Duration // of the last
		text     string        // in its message and violation
		fields   string        // RateLimit-Policy of it
	}{
		{"none", policy.Override{}, [3]codes.Code{0, codes.ResourceExhausted, codes.ResourceExhausted}, time.Minute, "1/min burst 1", `"a";q=1;w=60`},
		{"exempt", policy.Override{Exempt: true}, [3]codes.Code{}, 0, "", ""},
		{"a limit", policy.Override{Limit: limit(t, "2/h burst 2"), Rules: []string{"a"}}, [3]codes.Code{0, 0, codes.ResourceExhausted}, 30 * time.Minute, "2/h burst 2", `"a";q=2;w=3600`},
		{"denied", policy.Override{Deny: true}, [3]codes.Code{codes.PermissionDenied, codes.PermissionDenied, codes.PermissionDenied}, 0, "waiting does not help", ""},
		{"denied by a rule's name", policy.Override{Deny: true, Rules: []string{"a"}}, [3]codes.Code{codes.PermissionDenied, codes.PermissionDenied, codes.PermissionDenied}, 0, `rule "a"`, ""},
		{"denied for a while", policy.Override{Deny: true, Until: time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC)},
			[3]codes.Code{codes.PermissionDenied, codes.PermissionDenied, codes.PermissionDenied}, 2 * time.Hour, "retry after 2h0m0s", `"a";q=1;w=60`},
		{"ended", policy.Override{Deny: true, Until: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)},
			[3]codes.Code{0, codes.ResourceExhausted, codes.ResourceExhausted}, time.Minute, "1/min burst 1", `"a";q=1;w=60`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // begins at 2000-01-01
				p, err := policy.Compile([]policy.Rule{{Name: "a", Limit: limit(t, "1/m burst 1")}})
				if err != nil {
					t.Fatal(err)
				}
				if c.name != "none" {
					c.override.Match = match(t, "header.x-plan", "paid")
					if p, err = p.WithOverrides([]policy.Override{c.override}); err != nil {
						t.Fatal(err)
					}
				}
				cl := serve(t, &service{}, limited(policy.NewEngine(p, spillgate.NewMemory()), grpclimit.Headers(grpclimit.Refusals)))
				ctx := metadata.AppendToOutgoingContext(t.Context(), "x-plan", "paid")
				for i, want := range c.codes {
					var md metadata.MD
					got := call(ctx, cl, grpc.Header(&md))
					if got.Code() != want {
						t.Fatalf("call %d: %v", i, got)
					}
					if i < 2 {
						continue
					}
					retry, quota := details(got)
					if retry.GetRetryDelay().AsDuration() != c.retry || (quota != nil) != (want == codes.ResourceExhausted) {
						t.Errorf("retry %v, quota %v", retry, quota)
					}
					if all := got.Message() + quota.String(); !strings.Contains(all, c.text) {
						t.Errorf("%q lacks %q", all, c.text)
					}
					if fields := strings.Join(md["ratelimit-policy"], "|"); fields != c.fields {
						t.Errorf("fields %s, want %s", fields, c.fields)
					}
				}
			})
		})
	}
}

// Whom a penalty blocks is told the rule and the end of the block, and that end is
// true.
func TestStatusUnderAPenalty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, &service{}, limited(engineOf(t, policy.Rule{Name: "a", Key: key(t, "user"), Limit: limit(t, "1/m burst 1"),
			Penalty: policy.Penalty{After: 2, Within: time.Minute, Block: time.Hour}}), grpclimit.User(func(context.Context) string { return "alice" })))
		for i, want := range []struct {
			code    codes.Code
			retry   time.Duration
			blocked bool
		}{{codes.OK, 0, false}, {codes.ResourceExhausted, time.Minute, false}, {codes.ResourceExhausted, time.Hour, true}, {codes.ResourceExhausted, time.Hour, true}} {
			got := call(t.Context(), c)
			retry, quota := details(got)
			if got.Code() != want.code || retry.GetRetryDelay().AsDuration() != want.retry || strings.Contains(got.Message(), "is blocked") != want.blocked {
				t.Errorf("call %d: %v, retry %v", i, got, retry)
			}
			violations := quota.GetViolations()
			if want.code == codes.OK && violations == nil {
				continue
			}
			described := fmt.Sprintf("1/min burst 1: used up; retry after %s", want.retry)
			if want.blocked {
				described = fmt.Sprintf("1/min burst 1: blocked, for it was refused too often; retry after %s", want.retry)
			}
			if len(violations) != 1 || violations[0].QuotaId != "a" || violations[0].Subject != "user" || violations[0].Description != described ||
				violations[0].QuotaMetric != "requests" || violations[0].QuotaValue != 1 || violations[0].ApiService != "grpc.testing.TestService" {
				t.Errorf("call %d: %v, want %q", i, violations, described)
			}
		}
		time.Sleep(time.Hour - 1)
		if got := call(t.Context(), c); got.Code() != codes.ResourceExhausted {
			t.Errorf("a nanosecond early: %v", got)
		}
		time.Sleep(time.Nanosecond)
		if got := call(t.Context(), c); got.Code() != codes.OK {
			t.Errorf("after the block: %v", got)
		}
	})
}
