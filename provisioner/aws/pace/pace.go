package pace

import (
	"context"
	"fmt"
	"strings"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	"golang.org/x/time/rate"
)

// limit is a token bucket: burst calls at once, perSecond after that.
type limit struct {
	perSecond rate.Limit
	burst     int
}

// The documented buckets of an account in a region, less a tenth for everything else that calls EC2
// there. Source: https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
var (
	reads = limit{18, 90}  // of 20 and 100: Describe*
	rest  = limit{4.5, 45} // of 5 and 50: CreateFleet, CreateLaunchTemplate and DeleteLaunchTemplate among them
	own   = map[string]limit{
		"CreateTags":         {9, 90},   // of 10 and 100
		"RunInstances":       {1.8, 4},  // of 2 and 5
		"TerminateInstances": {4.5, 90}, // of 5 and 100
	}
)

// operations are the ones that have a bucket of their own here; others are rare and share none.
var operations = []string{
	"CreateFleet", "CreateLaunchTemplate", "DeleteLaunchTemplate", "CreateTags", "RunInstances", "TerminateInstances",
	"DescribeInstances", "DescribeLaunchTemplates", "DescribeImages", "DescribeSubnets", "DescribeSecurityGroups",
	"DescribeInstanceTypes", "DescribeInstanceTypeOfferings", "DescribeSpotPriceHistory",
}

func limitOf(operation string) limit {
	if l, ok := own[operation]; ok {
		return l
	}
	if strings.HasPrefix(operation, "Describe") {
		return reads
	}
	return rest
}

// Pacer has a bucket for each operation. Safe for concurrent use.
type Pacer struct{ buckets map[string]*rate.Limiter }

// New makes a Pacer with full buckets.
func New() *Pacer {
	p := &Pacer{buckets: map[string]*rate.Limiter{}}
	for _, operation := range operations {
		l := limitOf(operation)
		p.buckets[operation] = rate.NewLimiter(l.perSecond, l.burst)
	}
	return p
}

// Wait blocks until the operation may be called, or ctx ends.
func (p *Pacer) Wait(ctx context.Context, operation string) error {
	bucket, ok := p.buckets[operation]
	if !ok {
		return nil
	}
	if err := bucket.Wait(ctx); err != nil {
		return fmt.Errorf("wait for a turn to call %s: %w", operation, err)
	}
	return nil
}

// Install adds the Pacer to a client: every attempt of a call waits its turn.
func (p *Pacer) Install(stack *middleware.Stack) error {
	return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("BerthPace",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			if err := p.Wait(ctx, awsmiddleware.GetOperationName(ctx)); err != nil {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, err
			}
			return next.HandleFinalize(ctx, in)
		}), "Retry", middleware.After)
}
