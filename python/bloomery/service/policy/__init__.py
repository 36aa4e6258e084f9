"""What happens as filters fill: policies, alerts, webhooks, forecasts and rebuilds."""
