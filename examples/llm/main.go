// Command llm pays for calls of a language model by the token: it reserves an
// estimate before a call, and settles the truth after it.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/spillgate/spillgate"
	"github.com/spillgate/spillgate/policy"
	"github.com/spillgate/spillgate/policyfile"
)

// A model answers a prompt in at most so many tokens, and says how many the
// two took.
type model func(ctx context.Context, prompt string, most int64) (reply string, used int64, err error)

// ask asks a model on a user's account. Where the user's limits refuse, the
// error is a *policy.DeniedError, which says when to come back.
func ask(ctx context.Context, eng *policy.Engine, call model, user, prompt string) (string, error) {
	const most = 1000
	estimate := int64(len(prompt)) + most // no token is shorter than a byte
	v := eng.Decide(ctx, policy.Attrs{"user": user}, policy.Cost("tokens", estimate))
	if err := v.Err(); err != nil {
		return "", err
	}
	defer v.Done() // frees the slot of "calls"
	reply, used, err := call(ctx, prompt, most)
	if err != nil {
		return "", err // nobody knows what that took, so the estimate stands
	}
	return reply, v.Spent("tokens", used)
}

func main() { // start it in this folder
	pol, err := policyfile.Load("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	eng := policy.NewEngine(pol, spillgate.NewMemory())
	parrot := func(_ context.Context, prompt string, _ int64) (string, int64, error) { return prompt, 2, nil }
	fmt.Println(ask(context.Background(), eng, parrot, "alice", "hello"))
}
