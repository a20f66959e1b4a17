// Package policy turns requests into charges: rules are compiled once into an
// immutable [Policy], and an [Engine] finds the rules that match a request,
// charges all of them or none, and folds the decisions into one [Verdict].
//
// The policy never sees HTTP, nor any other protocol: a front offers its
// request as [Attributes], read lazily. Application code can be a front too:
//
//	v := eng.Decide(ctx, policy.Attrs{"user": id}, policy.Cost("tokens", estimate))
//	if err := v.Err(); err != nil {
//		return err // a *DeniedError, or one that wraps spillgate.ErrUnavailable
//	}
//	defer v.Done()
//	...
//	v.Spent("tokens", reply.Usage.Total)
package policy
