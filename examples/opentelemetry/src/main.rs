//! The numbers of a limiter as OpenTelemetry instruments.
//!
//! `cargo run -p opentelemetry-example` prints what a reader collects. Your application has its own
//! reader: put its meter in place of this one.

mod instruments;
#[cfg(test)]
mod tests;

use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use tower_throttle::{Limiter, Policy, TokenBucket};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let exporter = InMemoryMetricExporter::default();
    let reader = PeriodicReader::builder(exporter.clone()).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();

    let mails = Policy::new("mails", TokenBucket::per_minute(3));
    let limiter = Limiter::builder().name("outbox").policy(mails).build()?;
    let seen = limiter.clone();
    instruments::register(&provider.meter("tower-throttle"), move || seen.metrics());

    for _ in 0..5 {
        let decision = limiter.check("ann").await?;
        println!("allowed: {}", decision.is_allowed());
    }
    provider.force_flush()?;
    println!("{:#?}", exporter.get_finished_metrics()?);
    Ok(())
}
